"""The documentation: the site, the reference of the commands, the manual pages, the links."""
