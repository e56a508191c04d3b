//go:build unix && !linux

package child

import "syscall"

// dieWithPQ does nothing here: a command survives pq if that is killed.
func dieWithPQ(*syscall.SysProcAttr) {}
