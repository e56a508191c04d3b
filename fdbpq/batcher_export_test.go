package fdbpq

import "time"

// ListedLife is how long pushes rely on an earlier batch that saw their queue listed: see
// internal/codec/list.go.
const ListedLife = time.Minute
