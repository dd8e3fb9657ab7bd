"""Real workloads: servers under load and jobs, each giving rows of the runs table."""
