"""Documents as human text: one function per view, which returns the lines of a screen.

This package writes nothing and knows no commands. The command line and other screens print or draw the lines.
"""
