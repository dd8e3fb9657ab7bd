"""What every answer is made of: results, estimates, caveats, text and pages."""
