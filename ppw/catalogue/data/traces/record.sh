#!/bin/sh
# Record the sample traces: record.sh FOLDER [DEVICE]
#
# FOLDER gets the traces. DEVICE is a block device of 4 GiB or more; WHATEVER IT HOLDS IS LOST.
# Without it a loop device is made over a sparse file in FOLDER, and removed on every way out.
# HADOOP_CLASSPATH, where it is set, names Hadoop's configuration and jars, the examples among
# them: Terasort is recorded too. Needs root, fio, e2fsprogs, util-linux, and
# ppw and its python3 on PATH.
set -eu

folder=$(realpath "${1:?usage: record.sh FOLDER [DEVICE]}")
device=${2:-}
work=$(mktemp -d "$folder/record-XXXXXX")
loop=

clean() {
    set +e
    cd /
    if mountpoint -q "$work/mounted"; then umount "$work/mounted"; fi
    if [ -n "$loop" ]; then losetup --detach "$loop"; fi
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "$work/mounted"
if [ -z "$device" ]; then
    truncate --size=4G "$work/disk"
    loop=$(losetup --find --show --direct-io=on "$work/disk")
    device=$loop
fi

# A smaller file, which says neither where it was made nor on which device. Times are kept to a
# quarter of a microsecond, latencies to seven digits.
pack() {
    python3 - "$1" "$2" <<'PYTHON'
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

source, target = sys.argv[1:]
table = pq.read_table(source)
said = json.loads(pq.read_metadata(source).metadata[b"ppw.trace"])
said["source"] = Path(target).name
said["names"]["device"] = ["loop" for _ in said["names"]["device"]]
coarse = {
    "time_s": np.round(table["time_s"].to_numpy() * 2**22) / 2**22,
    "latency_s": table["latency_s"].to_numpy().astype(np.float32).astype(float),
}
for name, values in coarse.items():
    table = table.set_column(table.column_names.index(name), name, pa.array(values))
table = table.replace_schema_metadata({b"ppw.trace": json.dumps(said).encode()})
coded = {"time_s": "BYTE_STREAM_SPLIT", "latency_s": "BYTE_STREAM_SPLIT"}
coded["lbn"] = "DELTA_BINARY_PACKED"
plain = [name for name in table.column_names if name not in coded]
pq.write_table(
    table,
    target,
    compression="zstd",
    compression_level=19,
    use_dictionary=plain,
    column_encoding=coded,
)
PYTHON
}

# trace NAME FIO-OPTIONS: 6000 requests of the first GiB, which do not wait for one another. At
# the priority of real time, as else a busy host makes a fixed rate one of bursts.
trace() {
    name=$1
    shift
    ppw trace record "$device" --output "$work/$name.parquet" -- \
        chrt --fifo 50 fio --name="$name" --filename="$device" --size=1g --direct=1 \
        --ioengine=libaio --iodepth=64 --number_ios=6000 --norandommap --randseed=20 \
        --output=/dev/null "$@"
    pack "$work/$name.parquet" "$folder/$name.parquet"
}

# Blocks that were never written are not read from the disk.
fio --name=fill --filename="$device" --size=1g --direct=1 --rw=write --bs=1m --output=/dev/null

trace uniform_fixed --rw=randread --bs=4k --rate_iops=500
trace uniform_poisson --rw=randread --bs=4k --rate_iops=500 --rate_process=poisson
trace zoned_80_20 --rw=randread --bs=4k --rate_iops=500 --rate_process=poisson \
    --random_distribution=zoned:80/20:20/80
trace sequential --rw=read --bs=64k --rate_iops=500
trace mixed_70_30 --rw=randrw --rwmixread=70 --bs=4k --rate_iops=350,150

[ -n "${HADOOP_CLASSPATH:-}" ] || exit 0

# Terasort of six million records, 600 MB, which it reads from the device and not from memory.
export mounted="$work/mounted"
cat > "$work/hadoop" <<'HADOOP'
program=$1
shift
exec java -Xmx700m -cp "$HADOOP_CLASSPATH" org.apache.hadoop.examples.ExampleDriver "$program" \
    -Dmapreduce.framework.name=local -Dfs.defaultFS=file:/// \
    -Dhadoop.tmp.dir="$mounted/tmp" -Dmapreduce.cluster.local.dir="$mounted/local" \
    -Dmapreduce.task.io.sort.mb=64 -Dmapreduce.local.map.tasks.maximum=2 \
    -Dmapreduce.input.fileinputformat.split.minsize=33554432 \
    -Dmapreduce.input.fileinputformat.split.maxsize=67108864 "$@"
HADOOP
mkfs.ext4 -q -F "$device"
mount "$device" "$mounted"
(cd "$mounted" && sh "$work/hadoop" teragen 6000000 "$mounted/in")
umount "$mounted"
mount "$device" "$mounted"
ppw trace record "$device" --output "$work/terasort.parquet" -- \
    sh -c 'sh "$1/hadoop" terasort "$mounted/in" "$mounted/out" && sync' sh "$work"
pack "$work/terasort.parquet" "$folder/terasort.parquet"
