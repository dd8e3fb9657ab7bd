"""Reports: one self-contained HTML page, verdict first, then evidence, caveats and the JSON."""
