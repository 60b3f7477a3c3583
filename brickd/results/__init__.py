"""Results for Python programs: the rows of a document as numpy, pandas, Arrow and HTML.

This package knows neither the origin of documents nor screens.
"""
