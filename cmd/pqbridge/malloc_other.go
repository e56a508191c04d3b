//go:build !cgo || !linux

package main

// tuneMalloc does nothing where the store does not use C's allocator, or that has no such settings.
func tuneMalloc() {}
