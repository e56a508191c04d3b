//go:build !unix

package main

// keepOthersOut does nothing: there is no umask here.
func keepOthersOut() {}
