//go:build !cgo

package main

// gcPercent is for a process whose store keeps its memory in Go's heap, which is
// not small then.
const gcPercent = 100
