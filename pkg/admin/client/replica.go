package client

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
