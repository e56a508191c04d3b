// Package race tells tests whether the race detector watches them. Pebble then also checks
// itself, which makes it 20 times slower, so tests that repeat something on many stores
// repeat it less often.
package race

import "github.com/cockroachdb/pebble/v2/vfs"

// Times returns how often a test repeats something: n times, or under times with the race
// detector.
func Times(n, under int) int {
	if Enabled {
		return under
	}
	return n
}

// FillDisk leaves a disk in memory no room for the log that an embedded store preallocates, if the race detector is on.
// minFree is what the store keeps free. vfs.MemFS then inverts each byte that it was given, one by one, which for one
// such log takes about a second.
func FillDisk(fs vfs.FS, minFree uint64) {
	disk, ok := fs.(interface{ TestingSetDiskUsage(vfs.DiskUsage) })
	if !Enabled || !ok {
		return
	}
	if _, err := fs.GetDiskUsage(""); err != nil { // the test has not said how full it is
		disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: minFree + 1<<19})
	}
}
