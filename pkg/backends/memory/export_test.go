package memory

import (
	"fmt"

	"example.org/rls/pkg/backends"
)

// Stored is the cell at key; "" if the key has no cell.
func (s *Store) Stored(key string) string {
	n := s.name(key)
	if st := s.shards[s.shardOf(n)].save(n, backends.Counter); st.Cell.Until != 0 {
		return fmt.Sprint(st)
	}
	return ""
}
