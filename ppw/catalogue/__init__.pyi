from . import datasets as datasets, hosts as hosts
