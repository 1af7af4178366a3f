package server

import "testing"

// TestChannelzCanBeTurnedOff fails when an upgrade of grpc-go takes away the
// function that turnChannelzOff stands for.
func TestChannelzCanBeTurnedOff(t *testing.T) {
	if turnChannelzOff == nil {
		t.Error("google.golang.org/grpc/internal.ChannelzTurnOffForTesting is gone: each call is counted for channelz")
	}
}
