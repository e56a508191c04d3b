//go:build !unix

package terminal

import "io"

// NoReader does not find out here.
func NoReader(io.Writer, bool) bool { return false }
