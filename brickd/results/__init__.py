"""Results for Python programs: the rows of a document as numpy, pandas, Arrow and HTML.

This package does not know where documents come from, and it knows nothing about screens.
"""
