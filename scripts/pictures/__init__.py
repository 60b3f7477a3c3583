"""The pictures of the documentation: captured from real terminals, drawn as SVG."""
