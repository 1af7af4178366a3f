//go:build !linux

package load

import "time"

func nap(d time.Duration) { time.Sleep(d) }
