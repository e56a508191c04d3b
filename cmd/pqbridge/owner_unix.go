//go:build unix

package main

import "syscall"

// keepOthersOut makes new files readable for their owner alone.
func keepOthersOut() { syscall.Umask(0o077) }
