//go:build !unix

package pebblekv

import "github.com/cockroachdb/pebble/v2/vfs"

// fileNumber returns 0: only a folder that is missing is noticed.
func fileNumber(vfs.FileInfo) uint64 { return 0 }
