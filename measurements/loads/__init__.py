"""Load generators' own files, made from a list of jobs or from a trace, and fio replaying one."""
