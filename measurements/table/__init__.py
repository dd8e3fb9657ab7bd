"""The runs table: schema, units, headers, reading, writing and checks."""
