"""A gate for upgrades: stored winners compiled under the installed Triton, compared with what was kept of them."""
