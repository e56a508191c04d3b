//go:build !unix

package main

// explainPermission returns the error: files have no owners by number here.
func explainPermission(err error, _ string) error { return err }
