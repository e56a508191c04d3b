package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// ListedLife is how long pushes rely on an earlier batch that saw their queue listed.
const ListedLife = codec.ListedLife
