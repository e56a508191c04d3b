//go:build !cgo || !linux

package main

// tuneMalloc does nothing: the store does not use C's allocator here, or the allocator has no such
// settings.
func tuneMalloc() {}
