//go:build unix

package pebblekv

import (
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fileNumber returns the number that a file has on its device, 0 if there is none.
func fileNumber(info vfs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Ino)
	}
	return 0
}
