"""Figures published in Akram, Marazakis & Bilas (2012), and what they imply; nothing is filled in.

S. Akram, M. Marazakis, A. Bilas: Understanding Scalability and Performance Requirements of
I/O-Intensive Applications on Future Multicore Servers. MASCOTS 2012, pages 171–180.

Rates are of 512-byte I/Os. s(u,c) is a scenario: utilisation low (l) or high (h); cycles per I/O
desired (d), today's (t) or projected (p). `docs/cpio.md` says which figures do not follow from the
others, and are therefore not here.
"""

CITATION = "Akram, Marazakis & Bilas 2012, MASCOTS, Table III, Table IV and Figure 9"

# The server of the projections.
CORES = 4096
FREQUENCY_HZ = 2e9

# Table III: I/Os a second that a server needs, and the storage bandwidth (GB/s) printed for them.
STORAGE_GB_S = {476e6: 243.7, 818e6: 418.8}
# Table III, TPC-C with full utilisation and today's cycles per I/O; the text says 12K cycles.
TPC_C_IOPS = 680e6
TPC_C_CPIO = 12_047
# Table III: s(l,t)/s(h,t), the utilisation of each application.
UTILISATION = {"HBase": 0.401, "BDB": 0.479, "TPC-C": 0.472, "I-HFDL": 0.489}

# Table IV: a data set of 35 ZB; watts of a server by column (the first is 0.5 W a core, not the
# 2.5 kW of the caption), and the mean cycles per I/O that each printed energy implies.
DATA_BYTES = 35e21
SERVER_W = (2048.0, 1250.0, 675.0)
WATTS_PER_CORE = 0.5
IMPLIED_CPIO = {"today": (56.9e3, 55.2e3, 57.5e3), "desired": (36.9e3, 36.9e3, 36.4e3)}
IMPLIED_CPIO |= {"projected": (6.11e6, 6.04e6, 6.07e6)}
IDLE_SHARE = 0.7

# Figure 9: gain in I/O rate from low to high utilisation by class of application.
GAIN = {"data stores": 1.43, "OLTP": 0.66}

# Growth of the market: I/Os a second in 2007, growth a year, and what they come to in 2020.
MARKET_YEAR, MARKET_IOPS, MARKET_YEARS = 2007, 2e6, 13
MARKET_2020_IOPS = {0.70: 1.98e9, 0.90: 8.41e9}
