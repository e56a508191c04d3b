package child

import "syscall"

// dieWithPQ lets the system kill a command if pq is killed, which then could not do it. That does
// not reach the processes that the command has started.
func dieWithPQ(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
