"""The documentation: the site under docs/, the reference of the commands, the manual pages, the link check."""
