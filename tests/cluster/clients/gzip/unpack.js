// Writes the text of a gzip file.
const packed = require('fs').createReadStream(process.argv[2], {highWaterMark: 1460});
packed.pipe(require('zlib').createGunzip()).pipe(process.stdout);
