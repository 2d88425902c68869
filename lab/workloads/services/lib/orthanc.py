# SPDX-License-Identifier: Apache-2.0
"""Visitors of Orthanc: orthanc.py MIX. `make` writes studies in the format of scanners; the others work on the archive."""
import os
import pathlib

from visits import Refused, Site, main

STUDIES, SLICES, SIDE = 12, 60, 512


class Visitor:
    def __init__(self, args, rng, number):
        self.rng, self.folder = rng, pathlib.Path(args.folder)
        if args.mix != "make":
            self.site = Site(args.port)

    def one(self, kind):
        known = self.site.json("GET", f"/{kind}")
        if not known:
            raise Refused(f"no {kind}")
        return self.rng.choice(sorted(known))

    def study(self):
        """All slices of a study, one request each, as a scanner sends them."""
        for file in sorted(self.folder.glob(f"{self.rng.randrange(STUDIES)}-*.dcm")):
            self.site.ask("POST", "/instances", file.read_bytes())

    def anonymise(self):
        self.site.json("POST", f"/studies/{self.one('studies')}/anonymize", {"Synchronous": True, "KeepSource": True})

    def archive(self):
        self.site.get(f"/studies/{self.one('studies')}/archive")

    def delete(self):
        if len(self.site.json("GET", "/studies")) > STUDIES:
            self.site.ask("DELETE", f"/studies/{self.one('studies')}", most=404)  # another visitor may have been faster

    def preview(self):
        self.site.get(f"/instances/{self.one('instances')}/preview")

    def tags(self):
        self.site.get(f"/instances/{self.one('instances')}/simplified-tags")

    def file(self):
        self.site.get(f"/instances/{self.one('instances')}/file")

    def find(self):
        level = self.rng.choice(["Patient", "Study", "Series"])
        self.site.json("POST", "/tools/find", {"Level": level, "Query": {"PatientName": f"*{self.rng.randrange(STUDIES)}*"}, "Expand": True})

    def series(self):
        self.site.get(f"/series/{self.one('series')}/instances-tags?simplify")

    def studies(self):
        """Writes the studies: a body of ellipses with the noise of a detector, 16 bits a pixel."""
        import numpy
        from pydicom.dataset import FileDataset, FileMetaDataset
        from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian
        self.folder.mkdir()
        down, across = numpy.mgrid[-1:1:SIDE * 1j, -1:1:SIDE * 1j]
        for study in range(STUDIES):
            noise = numpy.random.default_rng(study)
            for place in range(SLICES):
                wide, high = 0.5 + 0.3 * numpy.sin(place / SLICES * 3), 0.6
                image = 1000 * ((across / wide) ** 2 + (down / high) ** 2 < 1) + 700 * ((across - 0.2) ** 2 + down ** 2 < 0.03 * place / SLICES)
                image = (image + noise.normal(24, 12, image.shape)).clip(0, 4095).astype("<u2")
                head = FileMetaDataset()
                head.MediaStorageSOPClassUID, head.TransferSyntaxUID = CTImageStorage, ExplicitVRLittleEndian
                head.MediaStorageSOPInstanceUID = f"1.2.826.0.1.3680043.9.9999.{study}.{place}"
                slice_ = FileDataset(None, {}, file_meta=head, preamble=b"\0" * 128)
                slice_.is_little_endian, slice_.is_implicit_VR = True, False
                slice_.SOPClassUID, slice_.SOPInstanceUID = CTImageStorage, head.MediaStorageSOPInstanceUID
                slice_.PatientName, slice_.PatientID = f"Family{study}^Given", f"P{study}"
                slice_.StudyInstanceUID = f"1.2.826.0.1.3680043.9.9998.{study}"
                slice_.SeriesInstanceUID = f"1.2.826.0.1.3680043.9.9997.{study}"
                slice_.StudyDate, slice_.Modality, slice_.InstanceNumber, slice_.AccessionNumber = "20260101", "CT", place + 1, f"A{study}"
                slice_.Rows = slice_.Columns = SIDE
                slice_.SamplesPerPixel, slice_.PhotometricInterpretation, slice_.PixelRepresentation = 1, "MONOCHROME2", 0
                slice_.BitsAllocated, slice_.BitsStored, slice_.HighBit = 16, 12, 11
                slice_.PixelData = image.tobytes()
                slice_.save_as(self.folder / f"{study}-{place:03}.dcm", write_like_original=False)


MIXES = {
    "make": {"studies": 1},
    "upload": {"study": 1},
    "read": {"preview": 5, "tags": 3, "file": 3, "find": 2, "series": 1},
    "change": {"anonymise": 3, "archive": 2, "delete": 2},
}

if __name__ == "__main__":
    main(Visitor, MIXES, {"folder": os.environ.get("WORK", ".")})
