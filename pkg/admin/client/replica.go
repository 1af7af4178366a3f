package client

import (
	"errors"
	"fmt"
)

// Replica is a replica that was asked, or told.
type Replica struct {
	// Address is as ADMIN_FLEET has it; IP:port for one of several addresses of a name.
	Address string `json:"address"`
	OK      bool   `json:"ok"`
	Error   string `json:"error"` // why it is not OK
	Name    string `json:"name"`  // of its host
	// Hash is that of the rules in force; only in the status and the rules.
	Hash string `json:"hash,omitempty"`
}

// Answer is the document of one replica.
type Answer[D any] struct {
	*Replica
	Document D
}

// Answered has the number of processes that were asked, and how many of them answered.
type Answered struct{ All, OK int }

// Count counts replicas. The error joins those of the replicas that are not OK.
func Count(all []Replica) (n Answered, failed error) {
	n.All = len(all)
	for _, r := range all {
		if r.OK {
			n.OK++
		} else {
			failed = errors.Join(failed, fmt.Errorf("replica %s: %s", r.Address, r.Error))
		}
	}
	return n, failed
}
