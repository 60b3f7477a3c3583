"""The spans of a recording, for other tools: Perfetto, pprof, flame graphs, JSON Lines, CSV, Parquet.

The flow: chunks of a recording -> batches of rows (`span_stream`) -> an encoder (`formats`) -> a file (`output_file`).
A batch has the spans of one chunk of one ring, so memory does not grow with the recording.
"""
