/* An export has its runs here. A page from `motet view` asks its server. */
