package crashfs

import (
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Fill leaves a disk in memory no room for the log that an embedded store preallocates, if the race
// detector is on. minFree is what the store keeps free. vfs.MemFS then inverts each byte that it was given,
// one by one, which for one such log takes about a second.
func Fill(fs vfs.FS, minFree uint64) {
	disk, ok := fs.(interface{ TestingSetDiskUsage(vfs.DiskUsage) })
	if !harness.Race || !ok {
		return
	}
	if _, err := fs.GetDiskUsage(""); err != nil { // the test has not said how full it is
		disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: minFree + 1<<19})
	}
}
