from . import loop as loop, measure as measure, session as session
