"""Block traces: modelled, generated, compared, replayed, and asked what-ifs."""
