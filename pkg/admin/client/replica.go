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

// Rows are the rows of all documents.
func Rows[D, R any](all []Answer[D], of func(*D) []R) (rows []R) {
	for i := range all {
		rows = append(rows, of(&all[i].Document)...)
	}
	return rows
}

// Join has one row for all rows with the same key: the first of them, to which add adds the others.
func Join[R any, K comparable](rows []R, key func(*R) K, add func(one, more *R)) []R {
	joined, at := []R{}, map[K]int{}
	for i := range rows {
		of := key(&rows[i])
		if place, known := at[of]; known {
			add(&joined[place], &rows[i])
			continue
		}
		at[of] = len(joined)
		joined = append(joined, rows[i])
	}
	return joined
}
