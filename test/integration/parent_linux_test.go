package integration

import (
	"os/exec"
	"runtime"
	"syscall"
)

// launches carries commands to the one thread that starts them: the kernel's
// parent-death signal comes when the thread that started the child ends.
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

// startWithParent starts cmd so that it does not outlive the test binary.
func startWithParent(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	launches <- func() { started <- cmd.Start() }
	return <-started
}
