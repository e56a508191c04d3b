//go:build !unix

package main

import "io"

// noReader does not find out here.
func noReader(io.Writer, bool) bool { return false }
