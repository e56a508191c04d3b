//go:build !unix

package main

// keepOthersOut does nothing: there is no umask here.
func keepOthersOut() {}

// explainPermission returns the error: files have no owners by number here.
func explainPermission(err error, _ string) error { return err }
