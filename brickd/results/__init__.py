"""Results for Python programs: the rows of a document as numpy, pandas, Arrow and HTML.

Knows nothing of where documents come from, or of screens.
"""
