package testenv

import (
	"os/exec"
	"runtime"
	"syscall"
)

// launches carries commands to the one thread that starts them.
var launches = func() chan func() {
	ch := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range ch {
			start()
		}
	}()
	return ch
}()

// Start starts cmd so that the kernel kills it when this process
// dies, however that happens (a test's panic, a timeout, SIGKILL).
//
// The kernel's parent-death signal comes when the thread that started the
// child ends, and the Go runtime ends threads at will. So all children are
// started on one thread that is locked for as long as the process lives.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	launches <- func() { started <- cmd.Start() }
	return <-started
}
