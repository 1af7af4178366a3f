package server

import _ "unsafe" // for go:linkname

// turnChannelzOff is the only way to stop grpc-go from counting for channelz; see
// docs/adr/0013-by-hand.md.
//
//go:linkname turnChannelzOff google.golang.org/grpc/internal.ChannelzTurnOffForTesting
var turnChannelzOff func()

// WithoutChannelz stops grpc-go, in the whole process and for good, from counting and
// timing each call for channelz. grpc-go does so in every program that has channelz'
// service in it, used or not: about 2 % of a decision in memory.
func WithoutChannelz() {
	if turnChannelzOff != nil { // a test notices if grpc-go renames it
		turnChannelzOff()
	}
}
