"""The command line's room: kernel files, the commands, their answers as text and JSON."""
