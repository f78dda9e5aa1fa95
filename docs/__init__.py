"""The sources of the site, and the scripts that write its generated pages and its pictures."""
