//go:build !linux

package testenv

import "os/exec"

// Start starts cmd. Only Linux can tie a child's life to this
// process; elsewhere a test binary that is killed leaves its servers behind.
func Start(cmd *exec.Cmd) error { return cmd.Start() }
