//go:build !linux

package integration

import "os/exec"

func startWithParent(cmd *exec.Cmd) error { return cmd.Start() }
